package failures

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/operator"
)

// Boxes are the groups of several boxes, as one list. A fingerprint belongs to one of them.
type Boxes []*Groups

// List returns the groups of all boxes, also archived groups. The group with the latest failure comes first.
func (b Boxes) List(ctx context.Context) (list []Group, err error) {
	found := make([][]Group, len(b))
	reads, ctx := errgroup.WithContext(ctx)
	for n, box := range b {
		reads.Go(func() (err error) {
			found[n], err = box.List(ctx)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	list = slices.Concat(found...)
	slices.SortStableFunc(list, func(x, y Group) int { return y.Last().Compare(x.Last()) })
	return list, nil
}

// Show returns one group, or [ErrUnknown].
func (b Boxes) Show(ctx context.Context, fingerprint string) (Group, error) {
	_, g, err := b.find(ctx, fingerprint)
	return g, err
}

// find returns a group and its box. All boxes know the note of a group; a box with failures comes first.
func (b Boxes) find(ctx context.Context, fingerprint string) (in *Groups, found Group, err error) {
	err = fmt.Errorf("failures: %w", ErrUnknown)
	for _, box := range b {
		g, gone := box.Show(ctx, fingerprint)
		switch {
		case errors.Is(gone, ErrUnknown):
		case gone != nil:
			return nil, g, gone
		case !g.Last().IsZero():
			return box, g, nil
		// Without failures the place that was stored with the note decides: a relay has no consumer.
		case in == nil || (g.Consumer == "") == (box.part == operator.PartOutbox):
			in, found, err = box, g, nil
		}
	}
	return in, found, err
}

// Act treats all failures of a group, see [Groups.Act].
func (b Boxes) Act(ctx context.Context, action operator.Action, g *Group, by operator.By, bulk *operator.Bulk) (int64, error) {
	box, _, err := b.find(ctx, g.Fingerprint)
	if err != nil {
		return 0, err
	}
	return box.Act(ctx, action, g, by, bulk)
}

// Note sets the note of a group, see [Groups.Note].
func (b Boxes) Note(ctx context.Context, fingerprint, text string, by operator.By) error {
	box, _, err := b.find(ctx, fingerprint)
	if err != nil {
		return err
	}
	return box.Note(ctx, fingerprint, text, by)
}

// Archive takes a group out of the lists until the next failure, see [Groups.Archive].
func (b Boxes) Archive(ctx context.Context, fingerprint string, by operator.By) error {
	box, _, err := b.find(ctx, fingerprint)
	if err != nil {
		return err
	}
	return box.Archive(ctx, fingerprint, by)
}

// Unarchive puts a group back into the lists.
func (b Boxes) Unarchive(ctx context.Context, fingerprint string, by operator.By) error {
	box, _, err := b.find(ctx, fingerprint)
	if err != nil {
		return err
	}
	return box.Unarchive(ctx, fingerprint, by)
}
