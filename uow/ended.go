package uow

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// mark is set in the transaction of a unit on a connection that does not report which statements are sent over it (config.UseDB). It disappears
	// with the transaction, also after COMMIT AND CHAIN. Unlike a query it takes no snapshot, so SET TRANSACTION is still possible.
	mark = `SET LOCAL oncebox.unit = 'open'`

	// probe proves that the transaction is alive and has the mark, and asks for its id without assigning one.
	probe = `SELECT coalesce(pg_current_xact_id_if_assigned()::text, ''), coalesce(current_setting('oncebox.unit', true), '') = 'open'`
)

// endedUnseen describes the end of a transaction of which is only known that another one has taken its place.
const endedUnseen = "COMMIT or ROLLBACK, and another one was begun"

// marked sets the mark, where it is needed.
func (r *root) marked(ctx context.Context) error {
	err := r.conn.Raw(func(c any) error {
		_, r.exact = pgsql.EndedTx(c)
		return nil
	})
	if err != nil || r.exact {
		return err
	}
	_, err = r.tx.Tx.ExecContext(ctx, mark)
	return err
}

// probed asks the server whether the transaction is alive, and whether it is still the transaction that the unit began.
func (r *root) probed(ctx context.Context) error {
	var xid string
	var ours bool
	if err := r.tx.Tx.QueryRowContext(ctx, probe).Scan(&xid, &ours); err != nil {
		if gone := interrupted(ctx); gone != nil {
			return fmt.Errorf("uow: before COMMIT: %w", gone)
		}
		return fmt.Errorf("uow: before COMMIT the transaction was found failed or busy: an error was not returned, or rows were not closed: %w", err)
	}
	if !r.exact && !ours {
		return &pgerr.EndedError{How: endedUnseen}
	}
	r.xid = xid
	return nil
}

// ended returns [ErrTransactionEnded] if the connection knows that the transaction is not that of the unit any more.
func (r *root) ended() error {
	if how := r.endedHow(); how != "" {
		return &pgerr.EndedError{How: how}
	}
	return nil
}

func (r *root) endedHow() (how string) {
	if r.closed {
		return ""
	}
	_ = r.conn.Raw(func(c any) error {
		how, _ = pgsql.EndedTx(c)
		return nil
	})
	return how
}

// taken makes an [ErrTransactionEnded] of the outcome of a unit whose function has ended the transaction itself. A function that has failed and
// called Rollback has got what it asked for: its error stays as it is.
func (r *root) taken(ctx context.Context, err error) error {
	how := r.endedHow()
	if err != nil && !r.exact && !r.closed && how == "" {
		how, err = r.unseen(ctx, err)
	}
	done, ended := errors.Is(err, sql.ErrTxDone), errors.Is(err, ErrTransactionEnded)
	if doomed := r.doomedBy(); !ended && errors.Is(doomed, ErrTransactionEnded) {
		err, ended = errors.Join(doomed, err), true // by a unit within, whose error was not returned
	}
	if r.closed || how == "" && !done && !ended || how == pgsql.EndedByRollback && err != nil && !done && !ended {
		return err
	}
	if before, ok := errors.AsType[*pgerr.EndedError](err); ok && how == "" {
		how = before.How
	}
	return &pgerr.EndedError{How: cmp.Or(how, "COMMIT or ROLLBACK"), XID: r.xid, Err: err}
}

// unseen finds out, on a connection that does not report it, whether another transaction has taken the place of the unit's, after the unit failed
// with err. A failed transaction does not answer.
func (r *root) unseen(ctx context.Context, err error) (how string, _ error) {
	switch {
	case r.alive():
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.manager.cfg.CommitTimeout)
		defer cancel()
		if look := r.probed(ctx); errors.Is(look, ErrTransactionEnded) {
			how = endedUnseen
		}
	case r.xid != "" && !r.gone():
		err = &pgerr.UncertainError{XID: r.xid, Err: err}
	}
	return how, err
}

// again reports whether a function that failed with err is to be run again.
func (m *Manager) again(err error) bool {
	return !errors.Is(err, ErrTransactionEnded) && m.cfg.Retry.If(err)
}
