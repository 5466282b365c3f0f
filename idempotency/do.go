package idempotency

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/uptrace/bun"
)

// commandTag changes with how [Do] compares commands.
const commandTag = "command-1"

// doneStatus is that of a stored result. Results have none; it only has to be a status that the table takes.
const doneStatus = 200

// Do runs fn once for the scope's key, and returns its result, from then on and until it expires, to each call with the
// same key and command. It is for command handlers that are called by something else than HTTP: a job, a command line, a
// message that two others may have caused. tx is the transaction in which fn works, that of a unit of work for example:
//
//	err := units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
//		receipt, err = idempotency.Do(ctx, keys, u.DB(), scope, cmd, func(ctx context.Context) (Receipt, error) { return pay(ctx, u, cmd) })
//		return err
//	})
//
// Give Scope.Path the name of the command, so that each has keys of its own. command is what is done, as JSON: with another
// one, the key is refused with [ErrMismatch], also after a deployment that adds a member to all of them. The result is stored
// as JSON and has to survive that; it should hold no secrets. What is refused for good belongs into the result, if it is to be
// remembered.
//
// Any error means that tx must be rolled back, which frees the key: that of fn is returned as it is, [ErrInProgress] if another
// transaction has the key. tx must be READ COMMITTED, see [Store.Begin]. What fn calls outside can be given keys, see [CallKey].
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
