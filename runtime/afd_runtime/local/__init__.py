"""A whole unit on this machine, without root and without Kubernetes: `afd serve --local`.

    layout      which processes, with which arguments, environment and files
    folder      where the unit file and the secret lie; leftovers of killed runs are removed
    children    real child processes: started, restarted when they die, ended together
    console     what is shown meanwhile
    main        the command

It does what kubelet and operator do for a unit, no more: the processes are those of the pods.
"""
