"""With which containers units run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from afd_operator.api.base import ApiModel
from afd_operator.api.pod_template import PodTemplate


class PullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Backend(StrEnum):
    NATIVE = "native"
    """Attention lanes are this project's own."""
    SGLANG = "sglang"
    """SGLang serves the attention role, our workers the experts."""


class Gateway(ApiModel):
    """The HTTP front of a deployment, shared by its units."""

    replicas: Annotated[int, Field(ge=1, le=100)] = 1
    """Gateway pods. Each is stateless towards the others; a lost one costs its open connections."""


class Runtime(ApiModel):
    """With which containers units run."""

    image: Annotated[
        str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9\[][A-Za-z0-9._:/@\[\]-]*$")
    ]
    """Image of all processes of a unit and of the gateway."""

    image_pull_policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    """When the image is pulled."""

    backend: Backend = Backend.NATIVE
    """What serves the attention role."""

    gateway: Gateway = Gateway()
    """The HTTP front of the deployment."""

    pod_template: PodTemplate = PodTemplate()
    """Additions to the pods."""
