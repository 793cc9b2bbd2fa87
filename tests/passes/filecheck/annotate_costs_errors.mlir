// RUN: not baechi-opt %s --pass-pipeline=annotate-costs 2>&1 | filecheck %s --check-prefix=TOPOLOGY
// RUN: not baechi-opt %s --pass-pipeline=annotate-costs{source=guess} 2>&1 | filecheck %s --check-prefix=SOURCE
// RUN: not baechi-opt %s --pass-pipeline=annotate-costs{source=table} 2>&1 | filecheck %s --check-prefix=TABLE
// RUN: not baechi-opt %s --pass-pipeline=annotate-costs{while-trips=0} 2>&1 | filecheck %s --check-prefix=TRIPS
// RUN: not baechi-opt %s --pass-pipeline=annotate-costs{source=table\ table=none.json} 2>&1 | filecheck %s --check-prefix=FILE

// TOPOLOGY: the module has no 'baechi.topology'; give it one
// SOURCE: source must be analytic or table, not guess
// TABLE: source=table and table=<path> go together
// TRIPS: while-trips must be >= 1, found 0
// FILE: cannot read the table of costs none.json
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    "func.return"(%x) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()
