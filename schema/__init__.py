"""The project's JSON Schemas of the Agent Client Protocol, version 1 (draft 2020-12). Data only.

`methods.json` is the table of methods: who receives it, the definitions of its params and its result.
`config_file.json` stands alone: what the user's config.json may hold. The other files hold the definitions,
one file for each area; a definition's name is unique in all of them.

Conventions besides JSON Schema's own:

- A union whose members are told apart by a tag has `discriminator: {"propertyName": tag}`, and the tag is
  a `const` in every member. A member with `not` takes all the other values of the tag.
- `x-known-values` are the values that have a meaning now; others of the same type are allowed.
- `x-deserialize-default-on-error`, `x-deserialize-default-on-null` and `x-deserialize-skip-invalid-items`
  say what a receiver does with a field that does not fit: take the default, or leave such items out.
- `x-experimental` marks what the stable protocol does not have yet, `x-legacy` what it has no more.
"""
