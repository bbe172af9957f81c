import assert from "node:assert/strict";
import { z } from "zod";
import { text } from "../src/fields.ts";
import { NotStructural, structural } from "../src/structural.ts";

const field = (schema: z.ZodType) => z.object({ field: schema }).describe("An object.");
const described = (schema: z.ZodType) => field(schema.describe("A field."));

/** What zod can say and a CRD cannot, by name. */
const REFUSED: Readonly<Record<string, z.ZodType>> = {
  refine: described(
    z
      .string()
      .max(5)
      .refine(() => false),
  ),
  superRefine: described(
    z
      .string()
      .max(5)
      .superRefine(() => {}),
  ),
  transform: described(z.string().max(5).transform(Number)),
  pipe: described(z.string().max(5).pipe(z.string().max(3))),
  preprocess: described(z.preprocess(String, z.string().max(5))),
  codec: described(z.codec(z.string().max(5), z.number(), { decode: Number, encode: String })),
  stringbool: described(z.stringbool()),
  coercion: described(z.coerce.number().min(0).max(1)),
  catch: described(z.string().max(5).catch("x")),
  readonly: described(z.string().max(5).readonly()),
  trim: described(z.string().trim().max(5)),
  lowercase: described(z.string().toLowerCase().max(5)),
  "a pattern with flags": described(z.string().regex(/a/i).max(5)),
  "a look-ahead": described(
    z
      .string()
      .regex(/^(?!a)/)
      .max(5),
  ),
  "a back reference": described(z.string().regex(/(a)\1/).max(5)),
  "a class of spaces": described(z.string().regex(/^\S+$/).max(5)),
  "two patterns": described(z.string().regex(/a/).regex(/b/).max(5)),
  "a format": described(z.email().max(99)),
  "an ISO duration": described(z.iso.duration().max(99)),
  union: described(z.union([z.string().max(5), z.number().min(0).max(1)])),
  "discriminated union": described(
    z.discriminatedUnion("a", [z.object({ a: z.literal("x") }), z.object({ a: z.literal("y") })]),
  ),
  intersection: described(z.intersection(z.object({}), z.object({}))),
  any: described(z.any()),
  unknown: described(z.unknown()),
  bigint: described(z.bigint()),
  date: described(z.date()),
  tuple: described(z.tuple([z.string().max(1)])),
  "a strict object": described(z.strictObject({})),
  "a loose object": described(z.looseObject({})),
  "an object with a catchall": described(z.object({}).catchall(z.string().max(1))),
  "a record whose keys have rules": described(z.record(z.string().regex(/a/), z.string().max(1).describe("A value."))),
  "a string without a maximum": described(z.string()),
  "a number without bounds": described(z.number()),
  "a list without a maximum": described(z.array(z.string().max(1).describe("An item."))),
  "a map without a maximum": described(z.record(z.string(), z.string().max(1).describe("A value."))),
  "a field without a description": field(z.string().max(5)),
  "an item without a description": described(z.array(z.string().max(5)).max(5)),
  "a description that Helm would read": field(z.string().max(5).describe("Use {{ this }}.")),
  deprecated: field(z.string().max(5).meta({ description: "A field.", deprecated: true })),
  "a list-map whose key is optional": described(
    z
      .array(z.object({ key: z.string().max(5).describe("A key.").optional() }).describe("An item."))
      .max(5)
      .meta({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"] }),
  ),
  "a set of objects": described(
    z.array(z.object({}).describe("An item.")).max(5).meta({ "x-kubernetes-list-type": "set" }),
  ),
};

describe("zod to a structural schema", () => {
  for (const [name, schema] of Object.entries(REFUSED)) {
    it(`refuses ${name}`, () => {
      assert.throws(
        () => structural(schema, "Kind.spec"),
        // zod itself refuses some of them with a plain Error.
        (error: Error) =>
          (error instanceof NotStructural || /cannot be represented/.test(error.message)) &&
          // For its own reason, not because this table forgot a description.
          /has no description/.test(error.message) === name.endsWith("without a description"),
      );
    });
  }

  it("names the field that it refuses", () => {
    assert.throws(
      () => structural(described(z.string()), "Kind.spec"),
      /Kind\.spec\.field: a string needs a maximum length/,
    );
  });

  it("says lengths, patterns, enums, defaults and list types", () => {
    const made = structural(
      z
        .object({
          name: text(5, "A name."),
          kind: z.enum(["A", "B"]).describe("A kind."),
          port: z.int().min(1).max(9).default(2).describe("A port."),
          tags: z.array(text(3, "A tag.")).max(2).meta({ description: "Tags.", "x-kubernetes-list-type": "set" }),
        })
        .describe("An object."),
      "x",
    );
    assert.deepEqual(made, {
      type: "object",
      description: "An object.",
      required: ["name", "kind", "tags"],
      properties: {
        name: { type: "string", minLength: 1, maxLength: 5, description: "A name." },
        kind: { type: "string", enum: ["A", "B"], description: "A kind." },
        port: { type: "integer", minimum: 1, maximum: 9, default: 2, description: "A port." },
        tags: {
          type: "array",
          maxItems: 2,
          description: "Tags.",
          "x-kubernetes-list-type": "set",
          items: { type: "string", minLength: 1, maxLength: 3, description: "A tag." },
        },
      },
    });
  });
});
