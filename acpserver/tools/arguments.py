"""Do the arguments of a call fit the tool's JSON Schema, and if not, what must the model change.

Any thread. The validators are kept, one for each tool.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from acpserver.errors import ToolError
from acpserver.tools.base import ForeignSchema, Tool

_FAULTS_TOLD = 5
_validators: WeakKeyDictionary[Tool, Draft202012Validator] = WeakKeyDictionary()
"""By tool object; two threads may build the same one at once, which does no harm."""


def check_arguments(tool: Tool, arguments: dict[str, object]) -> None:
    """Raise `ToolError` naming every fault. Null is right for an optional argument: several models write
    it for one that they leave out. Arguments of an MCP server's tool are for that server to check."""
    if isinstance(tool.parameters, ForeignSchema):
        return
    required = tool.parameters.get("required")
    needed = required if isinstance(required, list) else []
    given = {key: value for key, value in arguments.items() if value is not None or key in needed}
    faults = sorted(_validator(tool).iter_errors(given), key=lambda fault: str(fault.json_path))
    if faults:
        told = "; ".join(_describe(fault) for fault in faults[:_FAULTS_TOLD])
        raise ToolError(f"Wrong arguments for {tool.name}: {told}. {_expected(tool)}")


def _validator(tool: Tool) -> Draft202012Validator:
    """The validator of this tool object, made once."""
    validator = _validators.get(tool)
    if validator is None:
        validator = Draft202012Validator(tool.parameters)
        _validators[tool] = validator
    return validator


def _describe(fault: ValidationError) -> str:
    """One fault: where, and what is wrong there, without quoting a huge value."""
    where = fault.json_path.removeprefix("$").removeprefix(".")
    reason = fault.message if len(fault.message) <= 200 else f"{fault.message[:80]}…{fault.message[-100:]}"
    return f"{where}: {reason}" if where else reason


def _expected(tool: Tool) -> str:
    """The names of the arguments, for a model that guessed them."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    if not isinstance(properties, dict):
        return ""
    needed = required if isinstance(required, list) else []
    names = [name if name in needed else f"{name} (optional)" for name in properties]
    return f"Arguments: {', '.join(names) or 'none'}."
