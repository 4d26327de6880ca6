"""The operator: turns AFDDeployments into units that run, each whole inside one NVLink domain.

    api         what users write: AFDDeployment v1alpha1 as pydantic models, and the CRD made from them
    planner     what to run          (pure)
    placement   where to run it      (pure)
    resources   how it looks         (pure)
    lifecycle   what to do next      (pure)
    controller  the only I/O

Pure packages import neither kopf nor kubernetes.
"""
