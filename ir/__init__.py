"""The IR: modules of operations over typed values, their text form, and their checks.

Imports neither jax nor numpy. ``from_jaxpr`` and ``trace``, the border to JAX, are not exported:
import them by name.
"""

from baechi_jax.ir.attributes import (
    Attribute,
    DenseArray,
    DenseElements,
    DictAttr,
    FloatAttr,
    IntegerAttr,
    OpaqueAttr,
    ParameterizedAttr,
    SymbolRef,
    Unit,
    as_tuple,
    register_attribute,
)
from baechi_jax.ir.builder import Builder
from baechi_jax.ir.core import (
    Block,
    BlockArgument,
    Module,
    Operation,
    OpResult,
    Region,
    Value,
    topological_order,
)
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.errors import (
    BaechiError,
    IRError,
    ParseError,
    PassError,
    PipelineError,
    TopologyError,
    VerificationError,
)
from baechi_jax.ir.files import write_text_atomically
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.parser import parse_attribute, parse_module, parse_operation, parse_type
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.symbols import resolve
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.ir.types import (
    FunctionType,
    InFlightType,
    OnType,
    OpaqueType,
    ScalarType,
    TensorType,
    TokenType,
    Type,
    element_bits,
    nbytes,
    unplaced,
)
from baechi_jax.ir.verifier import verify

__all__ = [
    "UNKNOWN",
    "Attribute",
    "BaechiError",
    "Block",
    "BlockArgument",
    "Builder",
    "Cost",
    "DenseArray",
    "DenseElements",
    "Device",
    "DeviceMemory",
    "DictAttr",
    "FloatAttr",
    "FunctionType",
    "IRError",
    "InFlightType",
    "IntegerAttr",
    "Link",
    "Location",
    "Module",
    "OnType",
    "OpResult",
    "OpaqueAttr",
    "OpaqueType",
    "Operation",
    "ParameterizedAttr",
    "ParseError",
    "PassError",
    "PipelineError",
    "Region",
    "ScalarType",
    "SymbolRef",
    "TensorType",
    "TokenType",
    "Topology",
    "TopologyError",
    "Type",
    "Unit",
    "Value",
    "VerificationError",
    "as_tuple",
    "element_bits",
    "nbytes",
    "parse_attribute",
    "parse_module",
    "parse_operation",
    "parse_type",
    "print_module",
    "register_attribute",
    "resolve",
    "topological_order",
    "unplaced",
    "verify",
    "write_text_atomically",
]
