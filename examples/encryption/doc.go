// Package encryption is a worked example of an [event.Sealer]: one key per tenant, kept in a table, with rotation, and
// with the erasure of a tenant. Copy it and change it; the framework needs no more than the two methods in sealer.go.
//
//	keys := encryption.NewKeys(vault) // a pool of its own
//	cfg.UoW.Registry = event.NewRegistry(event.WithSealer(keys))
//	app, err := oncebox.New(db, broker, cfg)
//
// # Where the keys are
//
// With the table of the keys everything can be read, and a backup of it brings erased keys back. So it belongs into
// another database than the events, with backups that are kept for as long as an erasure may take; its files forget an
// erased key with the next VACUUM. Where a key management service is at hand, store the secrets encrypted by it.
//
// # Erasure
//
// [Keys.Erase] forgets the secrets of a tenant and keeps their ids, so that "erased" and "not here" can be distinguished. The events
// stay where they are, in tables, topics and backups, and nobody can read them. Processes remember keys for [Lifetime]:
// after that the erasure is complete. The tenant gets no other key; what it still tries to announce fails with
// [event.ErrErased].
//
// Only payloads are sealed. Ids of aggregates, routing keys and metadata stay readable: put nothing personal into them. The
// same holds for the errors of handlers, which dead letters quote, and for stored HTTP answers.
package encryption
