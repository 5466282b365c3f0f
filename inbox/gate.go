package inbox

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// enter enters a message, behind the gate if the handler is one of a read model.
func (w *wrapped) enter(ctx context.Context, u *uow.Unit, id store.Identity) (store.Entry, error) {
	if w.of == nil {
		return w.box.table.Entries.Enter(ctx, u, id)
	}
	return w.box.table.Gates.Enter(ctx, u, id, w.of)
}

// gate keeps a reset of the read model out until the end of the transaction. rebuilding says that live messages wait.
func (w *wrapped) gate(ctx context.Context, tx bun.IDB) (rebuilding bool, err error) {
	if w == nil || w.of == nil {
		return false, nil
	}
	return w.box.table.Gates.Pass(ctx, tx, w.of)
}

// gateOf is the gate of a consumer whose parked messages are handled.
func (i *Inbox) gateOf(ctx context.Context, tx bun.IDB, consumer string) error {
	_, err := i.handlerOf(consumer, "").gate(ctx, tx)
	return err
}

// setAside has a live message wait.
func (w *wrapped) setAside(ctx context.Context, tx bun.IDB, id store.Identity, m *messaging.Message) error {
	return w.box.table.Gates.SetAside(ctx, tx, id, m, w.of)
}
