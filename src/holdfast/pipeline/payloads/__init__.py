"""What payloads say: schemas in files, chosen by topic, and the rules that a payload must keep."""
