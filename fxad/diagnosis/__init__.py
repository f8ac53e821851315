"""What reads programs for people: where memory, time and digits go, and why."""
