"""What may be sent to each endpoint, and what comes back."""
