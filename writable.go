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
	// writableFor is how long an answer is reused. Probes may come from anybody, as often as they like.
	writableFor = 2 * time.Second
	// writableTimeout is how long the check may take: less than probes usually wait.
	writableTimeout = 2 * time.Second

	// spillEarly makes the server keep intermediate results on the disk of the database, whatever its settings are,
	// until the transaction ends.
	spillEarly = `SELECT set_config('work_mem', '64kB', true), set_config('temp_tablespaces', '', true)`

	// spill takes a megabyte of the server's disk and frees it again: the result of a function that is larger than
	// work_mem goes to a temporary file. With a full disk the statement fails, as the next statement that needs room in
	// a table would. It needs no table and no privilege, leaves nothing to clean up, and works in a read-only
	// transaction, so that a full disk and a read-only database can be told apart.
	spill = `SELECT current_setting('transaction_read_only')::boolean, count(*) FROM unnest(array_fill(repeat('x', 8000), ARRAY[128]))`

	// codeTooMany is the SQLSTATE of a limit that the server's configuration sets, such as temp_file_limit.
	codeTooMany = "53400"
)

var errReadOnly = errors.New("it is read-only, as a standby is, or default_transaction_read_only is on")

// writable checks whether the database takes writes.
type writable struct {
	mu    sync.Mutex
	asked time.Time
	err   error
}

// check returns why the database takes no writes, nil if it does. An answer may be up to writableFor old.
func (w *writable) check(ctx context.Context, db *bun.DB) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asked.IsZero() && time.Since(w.asked) < writableFor {
		return w.err
	}
	// Other probes get this answer, too, so the check must not end because the first probe has given up.
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
	if err == nil || pgerr.Code(err) == codeTooMany { // a server's limit for temporary files says nothing about the disk
		return nil
	}
	return fmt.Errorf("oncebox: not ready: the database takes no writes: %w", err)
}
