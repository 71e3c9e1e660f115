import allrail


@allrail.tensor_scheduler("graded")
def graded(tasks):
    """Urgent first; what the next forward pass needs soon is cut smaller."""
    for task in tasks:
        task.partition("1 MiB" if task.needed_us < 2_000 else "8 MiB")
    return sorted(tasks, key=lambda task: task.needed_us)


@allrail.tensor_scheduler("stop_and_wait", partition="1 MiB")
def stop_and_wait(_tasks):
    """As it goes: the most urgent partition, when the one before has finished."""
    return lambda core: None if core.in_flight else core.ready[0]
