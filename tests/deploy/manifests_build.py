"""The part of kustomize that deploy/k8s uses: build(FOLDER) is the list of its objects.

Names of generated ConfigMaps keep no hash. kubectl, where it is installed, is asked in
manifests_test.py whether it builds the same.
"""

import copy

import yaml

MERGE_KEYS = {  # of the lists that Kubernetes merges by a key
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "ports": "containerPort",
}


def load(path):
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def merged(base, patch, key=None):
    """A strategic merge: maps by key, the lists of MERGE_KEYS by theirs, all else replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        result = dict(base)
        for name, value in patch.items():
            result[name] = merged(base[name], value, name) if name in base else clean(value)
        return {name: value for name, value in result.items() if value is not None}
    if isinstance(base, list) and isinstance(patch, list) and key in MERGE_KEYS:
        field = MERGE_KEYS[key]
        result = list(base)
        added = []
        for item in patch:
            at = next((i for i, each in enumerate(result) if each.get(field) == item[field]), None)
            if item.get("$patch") == "delete":
                del result[at]
            elif at is None:
                added.append(clean(item))
            else:
                result[at] = merged(result[at], item)
        return added + result
    return clean(patch)


def clean(value):
    """Without the marks of patches, which have no meaning where nothing is merged."""
    if isinstance(value, dict):
        return {name: clean(each) for name, each in value.items() if name != "$patch"}
    if isinstance(value, list):
        return [
            clean(each)
            for each in value
            if not (isinstance(each, dict) and each.get("$patch") == "delete")
        ]
    return value


def apply_operations(value, operations):
    """JSON patches: add and remove."""
    for operation in operations:
        *path, last = operation["path"].strip("/").split("/")
        at = value
        for step in path:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if isinstance(at, list):
            index = len(at) if last == "-" else int(last)
            if operation["op"] == "add":
                at.insert(index, operation["value"])
            else:
                del at[index]
        elif operation["op"] == "add":
            at[last] = operation["value"]
        else:
            del at[last]


def matches(item, kind, name):
    return item["kind"] == kind and item["metadata"]["name"] == name


def patch(items, entry, folder):
    if "path" in entry:
        for change in load(folder / entry["path"]):
            at = find(items, change["kind"], change["metadata"]["name"])
            items[at] = merged(items[at], change)
        return
    at = find(items, entry["target"]["kind"], entry["target"]["name"])
    apply_operations(items[at], yaml.safe_load(entry["patch"]))


def find(items, kind, name):
    found = [i for i, item in enumerate(items) if matches(item, kind, name)]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} objects are {kind} {name}")
    return found[0]


def label(item, pairs):
    """Labels and selectors, as `labels` with includeSelectors sets them."""
    item["metadata"].setdefault("labels", {}).update(pairs)
    spec = item.get("spec", {})
    if item["kind"] == "Service":
        spec["selector"].update(pairs)
    for key in ("selector", "podSelector"):
        if "matchLabels" in spec.get(key, {}):
            spec[key]["matchLabels"].update(pairs)
    if "template" in spec:
        spec["template"]["metadata"].setdefault("labels", {}).update(pairs)


def set_image(item, image):
    pod = item.get("spec", {}).get("template", {}).get("spec", {})
    for container in pod.get("initContainers", []) + pod.get("containers", []):
        name, _, tag = container["image"].partition(":")
        if name == image["name"]:
            name, tag = image.get("newName", name), image.get("newTag", tag)
            container["image"] = f"{name}:{tag}" if tag else name


def config_map(items, generator, folder):
    data = dict(literal.split("=", 1) for literal in generator.get("literals", []))
    for name in generator.get("files", []):
        data[name] = (folder / name).read_text()
    if generator.get("behavior") == "merge":
        items[find(items, "ConfigMap", generator["name"])]["data"].update(data)
        return
    items.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": generator["name"]},
            "data": data,
        }
    )


def build(folder, items=None):
    """The objects of a folder; those of `items`, changed by it, if it is a component."""
    folder = folder.resolve()
    content = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {
        "apiVersion", "kind", "resources", "components", "configMapGenerator", "patches", "images",
        "labels",
    }  # fmt: skip
    unknown = set(content) - known
    if unknown:
        raise AssertionError(f"{folder}/kustomization.yaml: not understood here: {unknown}")
    items = [] if items is None else items
    for name in content.get("resources", []):
        path = folder / name
        items += build(path) if path.is_dir() else copy.deepcopy(load(path))
    for generator in content.get("configMapGenerator", []):
        config_map(items, generator, folder)
    for name in content.get("components", []):
        items = build(folder / name, items)
    for entry in content.get("patches", []):
        patch(items, entry, folder)
    for entry in content.get("labels", []):
        for item in items:
            label(item, entry["pairs"])
    for image in content.get("images", []):
        for item in items:
            set_image(item, image)
    return items
