"""JSON for people and version control: a list or object that fits a line is one."""
import json

LINE = 160


def dumps(value, depth=0):
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or depth + len(flat) <= LINE:
        return flat
    pad = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(str(key), ensure_ascii=False)}: {dumps(child, depth + 1)}"
                 for key, child in value.items()]
        return "{" + pad + ("," + pad).join(parts) + pad[:-1] + "}"
    parts = [dumps(child, depth + 1) for child in value]
    return "[" + pad + ("," + pad).join(parts) + pad[:-1] + "]"
