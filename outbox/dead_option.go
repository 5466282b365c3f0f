package outbox

import (
	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// DeadOption narrows which dead letter is meant, for [Store.DeadLetter], [Store.Replay] and [Store.Discard].
type DeadOption func(*pgsql.Where)

// OfTenant means the dead letter with the id only if it is one of this tenant: for operators who may not touch those of others. They
// get [ErrNotDead], as for an id that nobody has. An empty tenant has no dead letters.
func OfTenant(id string) DeadOption {
	return func(w *pgsql.Where) { w.Add("d.tenant_id = %s::text", id) }
}

// deadWithID is the condition on outbox_dead d.
func deadWithID(id uuid.UUID, opts []DeadOption) *pgsql.Where {
	w := &pgsql.Where{}
	w.Add("d.id = %s::uuid", id.String())
	for _, opt := range opts {
		opt(w)
	}
	return w
}
