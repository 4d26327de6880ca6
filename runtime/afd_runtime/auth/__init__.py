"""Who may join a unit, and who may read its status.

    shown     the credential that this process presents                (workers, gateways)
    judge     what the coordinator asks of a credential                (the interface)
    secret    one secret for all, in a file of mode 0600               afd serve --local
    token     projected ServiceAccount tokens, audience `afd`          Kubernetes

A credential is never logged, and neither is a claim of a token that was not verified.
"""
