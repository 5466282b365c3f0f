// Package encryption is an example of an [event.Sealer] that you can copy and change. It has one key for each tenant in a table, can rotate the
// keys, and can erase a tenant. oncebox itself needs only the two methods in sealer.go.
//
//	keys := encryption.NewKeys(vault) // a pool of its own
//	cfg.UoW.Registry = event.NewRegistry(event.WithSealer(keys))
//	app, err := oncebox.New(db, broker, cfg)
//
// # Where the keys are
//
// A person who has the table of the keys can read every event, and a backup of the table brings erased keys back. So keep the table in another
// database than the events, and keep its backups no longer than an erasure may take. The files of the table contain an erased key until the next
// VACUUM. If you have a key management service, let it encrypt the secrets before you store them.
//
// # Erasure
//
// [Keys.Erase] deletes the secrets of a tenant and keeps their ids, so that an erased key can be distinguished from an unknown key. The events
// stay where they are, in tables, topics and backups, and nobody can read them. Processes remember keys for [Lifetime]. After that time the
// erasure is complete. The tenant gets no new key: its further events fail with [event.ErrErased].
//
// Only payloads are sealed. Ids of aggregates, routing keys and metadata stay readable, so put no personal data into them. The errors of handlers,
// which dead letters quote, and stored HTTP answers stay readable as well.
package encryption
