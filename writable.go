package oncebox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

const (
	// writableFor is how long an answer counts. Probes may come from anybody, at any rate.
	writableFor = 2 * time.Second
	// writableTimeout is less than what probes usually wait for.
	writableTimeout = 2 * time.Second

	// spillEarly has what is kept for a statement go to the disk of the database, whatever the settings of the server, until the
	// transaction ends.
	spillEarly = `SELECT set_config('work_mem', '64kB', true), set_config('temp_tablespaces', '', true)`

	// spill takes a megabyte of the disk and gives it back: what a function returns is kept in a temporary file if it is more than
	// work_mem. A full disk fails it, as it fails the next statement that needs room in a table. It needs no table and no right,
	// leaves nothing to clean, and is allowed where writing is not, so that the two can be told apart.
	spill = `SELECT current_setting('transaction_read_only')::boolean, count(*) FROM unnest(array_fill(repeat('x', 8000), ARRAY[128]))`

	// codeTooMany is the SQLSTATE of a limit that the server's configuration sets, such as temp_file_limit.
	codeTooMany = "53400"
)

var errReadOnly = errors.New("it is read-only, as a standby is, or default_transaction_read_only is on")

// writable knows whether the database takes writes.
type writable struct {
	mu    sync.Mutex
	asked time.Time
	err   error
}

// check returns why the database takes no writes, as of writableFor ago at most.
func (w *writable) check(ctx context.Context, db *bun.DB) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asked.IsZero() && time.Since(w.asked) < writableFor {
		return w.err
	}
	// The answer is that of other probes, too: it must not be that the first one has gone away.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writableTimeout)
	defer cancel()
	w.err = askToWrite(ctx, db)
	w.asked = time.Now()
	return w.err
}

func askToWrite(ctx context.Context, db *bun.DB) error {
	var readOnly bool
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, spillEarly); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, spill).Scan(&readOnly, new(int64))
	})
	if err == nil && readOnly {
		err = errReadOnly
	}
	if err == nil || pgerr.Code(err) == codeTooMany { // which says nothing about the disk
		return nil
	}
	return fmt.Errorf("oncebox: not ready: the database takes no writes: %w", err)
}
