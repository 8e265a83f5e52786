// The walk graphs by which a Cosmos3 checkpoint generates; docs/cosmos3_walks.md draws them.
//   prefill            dit(text_inputs)
//   prefill_cond       dit(text_inputs) beside vae_encoder(image_inputs) -> cond_latents, kept
//   prefill_cond_video the same with video_inputs
//   image_gen          loop[ dit ] -> vae_decoder -> image to the client
//   video_gen          loop[ dit ] -> vae_decoder -> video
//   video_sound_gen    loop[ dit ] -> vae_decoder -> video, audio_decoder -> audio
//   action_gen         loop[ dit ] -> actions
//   action_video_gen   loop[ dit ] -> vae_decoder -> video
//   video_gen_ar       loop[ dit ] over all windows, each window's latents into a stream
//   video_decode_ar    (partition window_decoder) vae_decoder_ar -> video, window by window
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mstar/graph/walk_graph.h"
#include "mstar/models/cosmos3/config.h"

namespace mstar::cosmos3 {

// The walks that make what is served, but for windows.
void add_generation_walks(const std::vector<graph::Modality>& served,
                          const Cosmos3Config& config,
                          graph::ModelGraph& out);

// Video in windows: one partition makes them, another decodes them from a stream. Comes last: the
// walks that `out` has by then are the first partition's.
void add_window_walks(graph::ModelGraph& out);

// What a generation walk's loop begins with. The node draws first values itself, so that all but
// "cond_latents" may arrive as empty signals.
std::vector<std::string> gen_inputs(bool sound, bool actions);

// The modalities that a generation walk gives to the client.
std::vector<graph::Modality> outputs_of(std::string_view walk);

}  // namespace mstar::cosmos3
