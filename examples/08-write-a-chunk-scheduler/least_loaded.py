import allrail


@allrail.chunk_scheduler("least_loaded", order="smallest_first")
def least_loaded(problem):
    """Each chunk first to the dimension that has the least to do so far."""
    load = dict.fromkeys(problem.dimensions, 0.0)
    schedule = []
    for chunk in problem.chunks:
        stages = problem.visit(sorted(load, key=load.get))
        for stage, time in zip(stages, problem.times(chunk, stages), strict=True):
            load[stage.dimension] += time.busy_us
        schedule.append(stages)
    return schedule
