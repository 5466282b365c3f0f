package deadletter

import (
	"cmp"
	"context"
	"fmt"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// defaultPage is the number of letters on a page if the caller sets no limit.
const defaultPage = 100

// List reads a page of at most limit letters (0: 100) without payloads, the oldest first. The page begins after the
// letter after (nil: at the beginning).
func (b *Box[L]) List(ctx context.Context, filter operator.DeadFilter, after *L, limit int) ([]L, error) {
	if err := filter.Validate(); err != nil {
		return nil, b.wrap("list dead letters", err)
	}
	statement, args := b.Page(filter, after, limit)
	list, err := pgsql.Collect(b.Run.Query(ctx, b.DB(ctx), statement, args...), b.Scan)
	return list, b.wrap("list dead letters", err)
}

// Page returns the statement of [Box.List] and its arguments.
func (b *Box[L]) Page(filter operator.DeadFilter, after *L, limit int) (statement string, args []any) {
	w := b.SQL.Where(filter)
	if after != nil {
		w.Add(b.SQL.After, b.Place(after)...)
	}
	bound := w.Arg(cmp.Or(max(limit, 0), defaultPage))
	return fmt.Sprintf(b.SQL.List, w, bound), w.Args
}

// Show reads one letter with its payload.
func (b *Box[L]) Show(ctx context.Context, one One) (letter L, err error) {
	what := "show " + one.Name
	if one.Invalid != nil {
		return letter, b.wrap(what, one.Invalid)
	}
	list, err := pgsql.Collect(b.Run.Query(ctx, b.DB(ctx), fmt.Sprintf(b.SQL.Show, one.Where), one.Where.Args...), b.Scan)
	switch {
	case err != nil:
		return letter, b.wrap(what, err)
	case len(list) == 0:
		return letter, b.wrap(what, operator.ErrNotDead)
	case len(list) > 1:
		return letter, b.wrap(what, operator.ErrSeveralDead)
	default:
		return list[0], nil
	}
}

// Count counts the letters that the filter selects.
func (b *Box[L]) Count(ctx context.Context, filter operator.DeadFilter) (n int64, err error) {
	return b.count(ctx, filter, nil) // LIMIT NULL is no limit
}

// CountTo is Count that stops at most.
func (b *Box[L]) CountTo(ctx context.Context, filter operator.DeadFilter, most int) (n int64, err error) {
	return b.count(ctx, filter, most)
}

func (b *Box[L]) count(ctx context.Context, filter operator.DeadFilter, limit any) (n int64, err error) {
	if err = filter.Validate(); err == nil {
		w := b.SQL.Where(filter)
		bound := w.Arg(limit)
		err = b.Run.QueryRow(ctx, b.DB(ctx), fmt.Sprintf(b.SQL.Count, w, bound), w.Args, &n)
	}
	return n, b.wrap("count dead letters", err)
}

// Errors reads the errors of at most limit letters (0: 100), the newest first. It reads no further rows.
func (b *Box[L]) Errors(ctx context.Context, limit int) (list []operator.DeadError, err error) {
	rows := b.Run.Query(ctx, b.DB(ctx), b.SQL.Errors, cmp.Or(max(limit, 0), defaultPage))
	list, err = pgsql.Collect(rows, func(scan pgsql.Scan, d *operator.DeadError) error {
		return scan(&d.DiedAt, &d.Consumer, &d.TenantID, &d.Topic, &d.Type, &d.Error, &d.Fingerprint)
	})
	return list, b.wrap("list the errors of dead letters", err)
}
