// npm run check: the fast loop, without services, in under a minute.
import { fastLayers } from "./lib/fast.ts";
import { runLayers } from "./lib/layers.ts";

await runLayers(fastLayers);
