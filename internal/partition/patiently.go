package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/retry"
)

// patience is how often Patiently calls its function at most.
const patience = 5

// Patiently calls fn again while a table is in use: up to four times, after pauses that begin with 100 ms and double,
// with jitter. fn should wait for its lock only for a moment, because all other users of the table wait behind it. If
// the table stays in use, [InUse] reports that for the last error.
func Patiently(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if !InUse(err) {
			return err
		}
		if attempt == patience {
			return fmt.Errorf("the table is in use: %w", err)
		}
		if (retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: time.Second}).Wait(ctx, attempt) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// InUse reports whether a statement did not get a lock because another session has it.
func InUse(err error) bool {
	code := pgerr.Code(err)
	return code == pgerr.LockNotAvailable || code == pgerr.Deadlock
}

// each calls fn for each number from first to last, also after an error, and joins the errors. It waits for the table
// only once, because a table that is in use for one number is in use for all.
func each(ctx context.Context, first, last int, fn func(n int) error) error {
	var errs []error
	busy := false
	for n := first; n <= last && ctx.Err() == nil; n++ {
		try := func() error { return fn(n) }
		err := try()
		if InUse(err) && !busy {
			err = Patiently(ctx, try)
			busy = InUse(err)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, ctx.Err())...)
}
