"""What a bridge between two brokers carries, beside Mosquitto's own between two Mosquittos."""
