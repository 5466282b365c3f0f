package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/retry"
)

// patience is how often Patiently asks for a lock.
const patience = 5

// Patiently calls fn again while a table is in use: four times, after pauses of 100 ms and then twice as long each time, with jitter. fn waits for
// its lock only for a moment, because all other users of the table wait behind it. The last error is one of [InUse] if the table stayed in use.
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

// InUse reports whether a statement did not get a lock that others have.
func InUse(err error) bool {
	code := pgerr.Code(err)
	return code == pgerr.LockNotAvailable || code == pgerr.Deadlock
}

// each calls fn for each number from first to last, whatever becomes of the others, and joins the errors. It waits for the table only once:
// a table that is in use for one number is in use for the others as well.
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
