"""Which model new sessions start with: what the user has set, and whose model it is. Pure; any thread."""

from __future__ import annotations

from collections.abc import Sequence

from acpserver.catalog import known
from acpserver.provider_setup import MAIN, OFFLINE, ProviderSetup


def choose(providers: Sequence[ProviderSetup], wanted: str) -> tuple[str, str]:
    """The id of the model that new sessions start with, and "": or "", and why there is none.

    `wanted` is what the user set: "provider/model", a bare name, or "" for whatever is usable.
    """
    main = next((one for one in providers if one.name == MAIN), None)
    usable = [one for one in providers if not one.missing]
    if wanted == OFFLINE or (wanted and main):
        return (wanted, "") if wanted == OFFLINE or not main or not main.missing else ("", main.missing)
    if wanted:
        return _wanted(providers, usable, wanted)
    for one in usable:
        if one.models:
            return one.id_of(one.models[0].name), ""
    if usable:
        example = usable[0].id_of("NAME")
        return "", f"No model is configured: set ACPSERVER_MODEL (or --model), for example to {example}"
    return "", (
        "No model is configured: set a provider's key (such as ANTHROPIC_API_KEY), run 'acpserver login', or "
        "set ACPSERVER_MODEL (or --model) and ACPSERVER_BASE_URL"
    )


def _wanted(
    providers: Sequence[ProviderSetup], usable: Sequence[ProviderSetup], wanted: str
) -> tuple[str, str]:
    prefix, _, model = wanted.partition("/")
    named = next((one for one in providers if one.name == prefix and model), None)
    if named and not named.missing:
        return wanted, ""
    owners = [one for one in providers if any(wanted == info.name for info in one.models)]
    having = [one for one in owners if not one.missing]
    if named and not having:  # else it is a host of many that has a model of that name
        return "", named.missing
    disabled = next((one for one in owners if one.is_disabled), None)
    if disabled and not having:
        return "", disabled.missing
    if model and not owners:
        usable = [one for one in usable if _takes_slashes(one)]
        if not usable:
            return "", _unknown_prefix(providers, prefix, wanted)
    having = having or (list(usable) if len(usable) == 1 else [])
    having = having or [one for one in usable if one.name == "openai"]
    if len(having) == 1:
        return having[0].id_of(wanted), ""
    if having or usable:
        ids = " or ".join(one.id_of(wanted) for one in (having or usable)[:4])
        return "", f"It is not clear whose model {wanted} is: set the model to {ids}"
    owner = owners[0] if owners else next(one for one in providers if one.name == "openai")
    return "", owner.missing


def _takes_slashes(one: ProviderSetup) -> bool:
    """Whether the names of a provider's models may have slashes: where we know none of them, they may."""
    vendor = known(one.name)
    is_elsewhere = vendor is not None and vendor.base_url != one.base_url  # not the vendor's models, then
    return is_elsewhere or not one.models or any("/" in model.name for model in one.models)


def _unknown_prefix(providers: Sequence[ProviderSetup], prefix: str, wanted: str) -> str:
    usable = [one for one in providers if not one.missing]
    names = ", ".join(one.name for one in usable or providers)
    text = f"There is no provider {prefix!r}: the {'usable' if usable else 'known'} ones are {names}"
    return (
        f"{text}. A model of that name at {usable[0].title} is {usable[0].id_of(wanted)}" if usable else text
    )
