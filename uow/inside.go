package uow

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
)

// inside is a level as oncebox's own packages use it, see [unit.Unit]. It is a type of its own, so that its methods are not
// those of [Unit].
type inside level

var _ unit.Unit = (*inside)(nil)

func (u *inside) Send(ctx context.Context, b *pgx.Batch) (ok bool, err error) {
	return u.root.pipeline(func(p pgsql.Pipeline) error { return pgsql.Explain(p.Send(ctx, b)) })
}

func (u *inside) SendLast(b *pgx.Batch) (ok bool) {
	r := u.root
	if !r.canPipeline() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.ended {
		return false
	}
	r.active.last = append(r.active.last, b.QueuedQueries...)
	return true
}

func (u *inside) Identified(xid string) {
	u.root.mu.Lock()
	defer u.root.mu.Unlock()
	u.root.xid = xid
}

func (u *inside) ProvedBy(find unit.Proof) {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.proofs = append(r.active.proofs, find)
}

func (u *inside) Used() bool { return u.root.used.Load() }
