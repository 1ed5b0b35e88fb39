"""Reading of YAML files, with errors that name the file and the line."""

from pathlib import Path
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, which would keep the last of several equal keys."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for i, (key, _) in enumerate(node.value):
            if keys[i] in keys[:i] and keys[i] != "<<":
                raise yaml.constructor.ConstructorError(
                    problem=f"{keys[i]!r} is there twice", problem_mark=key.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[Any, Any]:
    """Returns the keys and values of a YAML file.

    Raises:
        ValueError: If it is not UTF-8 or not valid YAML, holds no keys, or has a key
            twice.
    """
    try:
        values = yaml.load(path.read_text("utf-8"), _Loader)
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8. Name a YAML file, or convert this one."
        raise ValueError(message) from None
    except (yaml.YAMLError, ValueError) as error:  # the latter: no such date
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else path
        problem = getattr(error, "problem", None) or getattr(error, "reason", error)
        is_brace = "got '{'" in str(problem)
        remedy = " Put names with braces in quotes." if is_brace else ""
        raise ValueError(f"{place} is not valid YAML: {problem}.{remedy}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold settings, such as `training: ...`.")
    return values
