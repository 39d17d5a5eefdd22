"""Profiles: named settings of connections, in a JSON file of the user."""

import json
import os
import pathlib
from typing import Any, Callable, Dict, List, Optional, Tuple

from quire.setting_errors import SettingsError, nearest

PATHS = ("ca_cert", "client_cert", "client_key", "api_key_file")  # relative to the file's folder
FIELDS = ("server", "tls", "server_name", "headers", *PATHS)


def read_profile(name: Optional[str]) -> Tuple[Dict[str, Any], Callable[[str], str]]:
    """The settings of a profile, and a function that names their places for errors.

    Without a name: of the profile "default", or none if there is no such profile.
    """
    file, must_exist = _file(name)
    if not must_exist and not os.path.exists(file):
        return {}, str
    profiles = _profiles(file)
    chosen = name or "default"
    if chosen not in profiles:
        if name is None:
            return {}, str
        raise SettingsError(f"{file}: no profile {name!r}; {nearest(name, profiles)}")
    profile = profiles[chosen]
    if not isinstance(profile, dict):
        raise SettingsError(f"{file}: profiles.{chosen} is not an object")
    for field in profile:
        if field not in FIELDS:
            raise SettingsError(
                f"{file}: profiles.{chosen}: unknown field {field!r}; {nearest(field, FIELDS)}"
            )
    values = dict(profile)
    for field in PATHS:
        if isinstance(values.get(field), str) and values[field]:
            values[field] = str(file.parent / values[field])
    return values, lambda field: f"{file}: profiles.{chosen}.{field}"


def _file(name: Optional[str]) -> Tuple[pathlib.Path, bool]:
    """The file of the profiles, and whether it is an error that it is missing."""
    given = os.environ.get("QUIRE_PROFILE_FILE", "")
    if given:
        return pathlib.Path(given), True
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # Without a home the path stays "~", where no file is.
    folder = base or os.path.expanduser("~/.config")
    return pathlib.Path(folder, "quire", "profiles.json"), name is not None


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SettingsError(f"the field {twice!r} is there twice")
    return fields


def _profiles(file: pathlib.Path) -> Dict[str, Any]:
    """The profiles of a file by name."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_object)
    except OSError as error:
        raise SettingsError(f"cannot read the profiles in {file}: {error.strerror}") from None
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None
    except ValueError as error:  # not JSON, or not UTF-8
        raise SettingsError(f"{file}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: not an object with the field 'profiles'")
    for field in content:
        if field != "profiles":
            raise SettingsError(f"{file}: unknown field {field!r}; {nearest(field, ['profiles'])}")
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        raise SettingsError(f"{file}: 'profiles' is not an object")
    return profiles
