"""Configurations of processors from a few values, without files or a machine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.processors.configuration import Configuration, Configured, Start, read_configuration
from holdfast.processors.documents import parse_document
from holdfast.processors.identity import Build

FOLDER = Path("/srv/bbu")
RECORD = """{
"Mqtt": {
"ZebraRfid": {
"Enabled": true,
"BrokerHost": "i5122f12.ala.us-east-1.emqxsl.com",
"BrokerPort": 8883,
"ClientId": "bbu-processor",
"SubscribeTopics": [
"zebra/fx/+/reads",
"zebra/fx/+/events"
],
"SharedSubscriptionGroup": "bbu-processors",
"Username": "dplx-bbu-rfid",
"Password": "...",
"AutoReconnect": true,
"ReconnectDelaySeconds": 5,
"CleanSession": false,
"AppendUniqueIdToClientId": false,
"SessionExpiryIntervalSeconds": 3600,
"EnvironmentId": null,
"InstanceId": null
}
}
}
"""
"""The decision record's example, letter by letter."""
RECORD_OF_PRODUCTION = """// appsettings.Production.json
{
"Mqtt": {
"ZebraRfid": {
"EnvironmentId": "elbbuprod", // Matches project's EnvironmentShortName
"InstanceId": "${CONTAINER_APP_REPLICA_NAME}" // Azure Container Apps
}
}
}
"""
"""What it lays over that in production."""


def start(variables: Mapping[str, str] | None = None, **changes: Any) -> Start:
    """A start of a release on Daves-MacBook."""
    given = {
        "machine_name": "Daves-MacBook",
        "build": Build.RELEASE,
        "timestamp": "20241205",
        "unique": "a1b2c3",
        "folder": FOLDER,
    }
    return Start(variables=variables or {}, **(given | changes))


def configuration(
    *contents: Any, variables: Mapping[str, str] | None = None, **changes: Any
) -> Configuration:
    """What the base and the file over it configure, each as text of JSON or as what it says."""
    names = ("appsettings.json", "appsettings.Production.json")
    texts = [each if isinstance(each, str) else json.dumps(each) for each in contents]
    documents = [parse_document(*each) for each in zip(names, texts, strict=False)]
    return read_configuration(documents, start(variables, **changes))


def configured(
    keys: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
    **changes: Any,
) -> Configured:
    """One processor, `ZebraRfid` in `azure-prod`, with these keys."""
    usual = {"BrokerHost": "broker.example", "EnvironmentId": "azure-prod"}
    section = {"Mqtt": {"ZebraRfid": usual | dict(keys or {})}}
    [found] = configuration(section, variables=variables, **changes).processors
    return found
