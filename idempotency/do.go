package idempotency

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"
)

// commandTag names how [Do] compares commands. Change it when that changes.
const commandTag = "command-1"

// doneStatus is the status of a stored result. It has no meaning: the table demands one.
const doneStatus = 200

// Do runs fn once for the scope's key, and returns its result, from then on and until it expires, to each call with the same key and command. It is
// for command handlers that are not called by HTTP: by a job, a command line, or a message that may have two causes. tx is the transaction in which
// fn works, that of a unit of work for example:
//
//	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
//		receipt, err = idempotency.Do(ctx, keys, u.DB(), scope, cmd, func(ctx context.Context) (Receipt, error) { return pay(ctx, u, cmd) })
//		return err
//	})
//
// Give Scope.Path the name of the command, so that each has keys of its own. command is compared as JSON: a call with the same key and another
// command fails with [ErrMismatch], also after a deployment that adds a member to all commands. The result is stored as JSON, so it must be
// possible to encode and decode it, and it should hold no secrets. To remember a permanent refusal, return it as a result and not as an error.
//
// After any error tx must be rolled back, which frees the key. An error of fn is returned as it is. [ErrInProgress]: another transaction has the
// key. tx must be READ COMMITTED, see [Store.Begin]. For keys of calls to other services in fn, see [CallKey].
func Do[T any](
	ctx context.Context, s *Store, tx bun.IDB, scope Scope, command any, fn func(ctx context.Context) (T, error),
) (result T, err error) {
	key, err := s.Key(scope)
	if err != nil {
		return result, err
	}
	asked, err := json.Marshal(command)
	if err != nil {
		return result, fmt.Errorf("idempotency: Do: encode the command of key %s: %w", key, err)
	}
	fp := NewFingerprint(commandTag, asked)
	found, err := s.Begin(ctx, tx, key, fp)
	if err != nil {
		return result, err
	}
	if found != nil {
		if err := json.Unmarshal(found.Body, &result); err != nil {
			return result, fmt.Errorf("idempotency: Do: decode the stored result of key %s: %w", key, err)
		}
		return result, nil
	}
	done, err := fn(NewContext(ctx, key.OutsideOf(fp)))
	if err != nil {
		return result, err
	}
	encoded, err := json.Marshal(done)
	if err != nil {
		return result, fmt.Errorf("idempotency: Do: encode the result of key %s: %w", key, err)
	}
	return done, s.Complete(ctx, tx, key, fp, Response{Status: doneStatus, Body: encoded})
}
