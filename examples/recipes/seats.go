package recipes

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/uow"
)

// ErrSoldOut means that a show has too few free seats, or that there is no such show.
var ErrSoldOut = errors.New("the show has too few free seats")

// SeatsTaken is announced when seats were taken.
type SeatsTaken struct {
	Show  string
	Seats int
}

// EventType names the event on the wire.
func (SeatsTaken) EventType() string { return "seats.taken" }

// TakeSeats takes free seats of a show, or none.
func TakeSeats(ctx context.Context, units *uow.Manager, show string, seats int) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		taken, err := u.DB().NewRaw("UPDATE shows SET free = free - ?0 WHERE id = ?1 AND free >= ?0", seats, show).Exec(ctx)
		if err != nil {
			return err
		}
		if n, err := taken.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			return ErrSoldOut
		}
		return u.Add("show", SeatsTaken{show, seats})
	})
}
