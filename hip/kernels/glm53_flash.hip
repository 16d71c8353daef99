// The decode step of GLM-5.3-Flash.
#include "mono/program.h"
#include "phases/kda_conv.h"
#include "phases/kda_gates.h"
#include "phases/kda_output.h"
#include "phases/kda_project.h"
#include "phases/kda_update.h"

using Glm53FlashStep = mono::Program<mono::KdaProject, mono::KdaGates, mono::KdaConv, mono::KdaUpdate, mono::KdaOutput>;

MONO_PROGRAM_KERNEL(glm53_flash_step, Glm53FlashStep)
