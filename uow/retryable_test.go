package uow_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/uow"
)

// victim fails like the victim of a deadlock.
func victim(ctx context.Context, u *uow.Unit) error {
	_, err := u.DB().ExecContext(ctx, "DO $$ BEGIN RAISE deadlock_detected; END $$")
	return err
}

func inPipelines(t *testing.T, s *service) *bun.DB {
	t.Helper()
	return pipelined(t, s.DSN)
}

// A deadlock that the function swallows, or hides behind its next statement, makes the function run again.
func TestSwallowedDeadlockIsRunAgain(t *testing.T) {
	for name, fn := range map[string]func(ctx context.Context, s *service, u *uow.Unit) error{
		"swallowed": func(ctx context.Context, _ *service, u *uow.Unit) error {
			_ = victim(ctx, u)
			return nil
		},
		"before an event": func(ctx context.Context, _ *service, u *uow.Unit) error {
			_ = victim(ctx, u)
			u.Track(newAccount("a", "one"))
			return nil
		},
		"before COMMIT alone": func(ctx context.Context, _ *service, u *uow.Unit) error {
			var xid string
			if err := u.DB().NewRaw("SELECT pg_current_xact_id()::text").Scan(ctx, &xid); err != nil {
				return err
			}
			uow.Inside(u).Identified(xid)
			_ = victim(ctx, u)
			return nil
		},
		"before another statement": func(ctx context.Context, _ *service, u *uow.Unit) error {
			_ = victim(ctx, u)
			return note(ctx, u, "never")
		},
		"before another unit": func(ctx context.Context, s *service, u *uow.Unit) error {
			_ = victim(ctx, u)
			return s.units.Do(ctx, func(context.Context, *uow.Unit) error { return nil })
		},
		"in a savepoint": func(ctx context.Context, s *service, _ *uow.Unit) error {
			return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				_ = victim(ctx, u)
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			s.units = s.manager(quick(), inPipelines(t, s), s.sink)
			tries := 0
			require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				if tries++; tries == 1 {
					return fn(ctx, s, u)
				}
				return note(ctx, u, "x")
			}))
			require.Equal(t, 2, tries)
			require.Equal(t, []string{"x"}, s.notes(t))
		})
	}
}

// Retryable returns an error that the code between may have hidden, until that code has mended it.
func TestRetryable(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func(ctx context.Context, s *service, u *uow.Unit)
		code string // SQLSTATE of the error to return
	}{
		"a statement": {func(ctx context.Context, _ *service, u *uow.Unit) { _ = victim(ctx, u) }, pgerr.Deadlock},
		"a statement that failed of itself": {func(ctx context.Context, _ *service, u *uow.Unit) {
			_, _ = u.DB().ExecContext(ctx, "SELECT 1/0")
		}, ""},
		"a savepoint of bun": {func(ctx context.Context, _ *service, u *uow.Unit) {
			_ = u.DB().RunInTx(ctx, nil, func(ctx context.Context, _ bun.Tx) error { return victim(ctx, u) })
		}, pgerr.Deadlock},
		"a unit that made another error of it": {func(ctx context.Context, s *service, _ *uow.Unit) {
			_ = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				_ = victim(ctx, u)
				return errRefused
			})
		}, pgerr.Deadlock},
		"a unit that made another error of it, and was tried again": {func(ctx context.Context, s *service, _ *uow.Unit) {
			for tries := range 2 {
				_ = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
					if tries == 0 {
						_ = victim(ctx, u)
						return errRefused
					}
					return nil
				})
			}
		}, ""},
		"a unit that was tried again": {func(ctx context.Context, s *service, _ *uow.Unit) {
			for tries := range 2 {
				_ = s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
					if tries == 0 {
						return victim(ctx, u)
					}
					return nil
				})
			}
		}, ""},
		"a unit after another unit of it was tried again": {func(ctx context.Context, s *service, _ *uow.Unit) {
			_ = s.units.Do(ctx, victim)
			_ = s.units.Do(ctx, func(context.Context, *uow.Unit) error { return nil })
		}, pgerr.Deadlock},
		"the latest of two was tried again": {func(ctx context.Context, s *service, _ *uow.Unit) {
			_ = s.units.Do(ctx, victim)
			for tries := range 2 {
				_ = s.units.Do(ctx, func(context.Context, *uow.Unit) error {
					if tries == 0 {
						return uow.ErrConflict
					}
					return nil
				})
			}
		}, pgerr.Deadlock},
		"another one within it was tried again": {func(ctx context.Context, s *service, _ *uow.Unit) {
			fail := true
			fn := func(ctx context.Context, u *uow.Unit) error {
				if fail {
					fail = false
					return victim(ctx, u)
				}
				return nil
			}
			_ = s.units.Do(ctx, fn)
			_ = s.units.Do(ctx, func(ctx context.Context, _ *uow.Unit) error { return s.units.Do(ctx, fn) })
		}, pgerr.Deadlock},
		"what is begun by hand is nobody's": {func(ctx context.Context, s *service, _ *uow.Unit) {
			tx, _ := s.units.Begin(ctx)
			_ = victim(tx.Context(), tx.Unit)
			_ = tx.Commit()
			tx, _ = s.units.Begin(ctx)
			_ = tx.Commit()
		}, pgerr.Deadlock},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, nil)
			s.units = s.manager(quick(), inPipelines(t, s), s.sink)
			for range 2 { // on the same connection
				require.ErrorIs(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
					require.NoError(t, u.Retryable())
					c.fn(ctx, s, u)
					require.Equal(t, c.code, pgerr.Code(u.Retryable()))
					require.Equal(t, c.code != "", u.Retryable() != nil)
					return errRefused
				}), errRefused)
			}
		})
	}
}

// Errors for which a function is not run again are not hidden either.
func TestRetryableIsWhatIsRunAgain(t *testing.T) {
	s := newService(t, nil)
	s.units = s.manager(&uow.Config{Retry: uow.RetryConfig{If: func(error) bool { return false }}}, inPipelines(t, s), s.sink)
	_ = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		_ = victim(ctx, u)
		require.NoError(t, u.Retryable())
		return errRefused
	})
}
