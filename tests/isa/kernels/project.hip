// Two phases of a KDA layer in a small kernel: the product of rows with a weight, and a phase with states.
#include "mono/program.h"
#include "phases/kda_conv.h"
#include "phases/kda_project.h"

using Project = mono::Program<mono::KdaProject, mono::KdaConv>;

MONO_PROGRAM_KERNEL(project_step, Project)
