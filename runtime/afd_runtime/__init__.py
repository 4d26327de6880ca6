"""The runtime of a unit: gateway, coordinator, attention lanes and expert workers."""
