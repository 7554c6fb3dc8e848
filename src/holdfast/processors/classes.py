"""From `module:Class` to a processor.

Owns: which processors are built in, and where others are looked for. Never: runs one.
"""

import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Final

from holdfast.core.errors import ConfigurationError
from holdfast.processors.processor import Processor
from holdfast.processors.table import Table

BUILT_IN: Final = {"zebrarfid": "holdfast.processors.zebra:ZebraRfid"}
"""By the names of processors in lower case."""


def make_processor(name: str, reference: str | None, folder: Path) -> Processor:
    """The processor of this name. Its module may stand in `folder`, which can be imported from
    afterwards. Raises `ConfigurationError`."""
    if reference is None:
        reference = BUILT_IN.get(name.lower())
    if reference is None:
        raise ConfigurationError(
            f"Mqtt.{name}.Processor: it is required, for none is built in by that name; such as"
            f' "readings:{name}" for the class {name} of readings.py beside the configuration'
        )
    place = f"Mqtt.{name}.Processor"
    module_name, colon, class_name = reference.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise ConfigurationError(f'{place}: expected "module:Class", but it is {reference!a}')
    if str(folder.absolute()) not in sys.path:
        sys.path.insert(0, str(folder.absolute()))
    found = _attribute(place, module_name, class_name)
    if not (isinstance(found, type) and issubclass(found, Processor)):
        raise ConfigurationError(f"{place}: {reference} is not a class of Processor")
    try:
        made = found()
    except Exception as error:
        raise ConfigurationError(f"{place}: {reference} cannot be made: {_told(error)}") from error
    if not isinstance(getattr(made, "table", None), Table):
        raise ConfigurationError(f"{place}: {reference} has no table of the class Table")
    return made


def _attribute(place: str, module_name: str, class_name: str) -> object:
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        what = "" if error.name == module_name else f" {module_name}, which imports it,"
        raise ConfigurationError(
            f"{place}:{what} there is no module {error.name}, neither installed nor beside the"
            " configuration"
        ) from error
    except Exception as error:
        sentence = f"{place}: {module_name} cannot be imported: {_told(error)}"
        raise ConfigurationError(sentence) from error
    if not hasattr(module, class_name):
        near = get_close_matches(class_name, vars(module), n=1)
        meant = f' (did you mean "{near[0]}"?)' if near else ""
        raise ConfigurationError(f"{place}: {module_name} has no {class_name}{meant}")
    return getattr(module, class_name)


def _told(error: Exception) -> str:
    """What went wrong in somebody's code, and the line of it."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} ({error.filename}, line {error.lineno})"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
