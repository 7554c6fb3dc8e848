"""MQTT as this broker serves it: control packets, sessions, Wills, retained, permissions."""
