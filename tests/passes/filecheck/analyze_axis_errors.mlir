// RUN: not baechi-opt %s --pass-pipeline='analyze-axis{inputs=[batsh]}' 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not baechi-opt %s --pass-pipeline='analyze-axis{inputs=[zzz]}' 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not baechi-opt %s --pass-pipeline='analyze-axis{inputs=[batch] axis=2}' 2>&1 | filecheck %s --check-prefix=AXIS
// RUN: not baechi-opt %s --pass-pipeline='analyze-axis{inputs=["*x*",w]}' 2>&1 | filecheck %s --check-prefix=SIZE
// RUN: not baechi-opt %s --pass-pipeline='analyze-axis{inputs=[w] axis=1}' 2>&1 | filecheck %s --check-prefix=EMPTY
// RUN: not baechi-opt %s --pass-pipeline='analyze-axis' 2>&1 | filecheck %s --check-prefix=GIVEN
// RUN: baechi-opt %s --pass-pipeline='analyze-axis{inputs=[batch]}' | filecheck %s

// NAME: no argument is named 'batsh'; did you mean 'batch'
// NONE: no argument is named 'zzz'; there are: batch['x'], batch['y'], w
// AXIS: argument 'batch['x']' has no dimension 2: its type is tensor<4x2xf32>
// SIZE: an axis has one size, but dimension 0 of argument 'w' has 3 elements and argument 'batch['x']' has 4
// EMPTY: dimension 1 of argument 'w' is empty: it has no pieces
// GIVEN: name the inputs whose axis to follow, as in analyze-axis{inputs=[x] axis=0}; there are: batch['x'], batch['y'], w

// A name stands for what is inside it.
// CHECK: arg_attrs = [{baechi.name = "batch['x']", baechi.axis = "split 0"}, {baechi.name = "batch['y']", baechi.axis = "split 0"}, {baechi.name = "w"}]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4x2xf32>, %y: tensor<4xf32>, %w: tensor<3x0xf32>):
    "func.return"(%x, %y, %w) : (tensor<4x2xf32>, tensor<4xf32>, tensor<3x0xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x2xf32>, tensor<4xf32>, tensor<3x0xf32>) -> (tensor<4x2xf32>, tensor<4xf32>, tensor<3x0xf32>), arg_attrs = [{baechi.name = "batch['x']"}, {baechi.name = "batch['y']"}, {baechi.name = "w"}]} : () -> ()
}) : () -> ()
