package track

import (
	"context"

	"domain"
	"github.com/oncebox/oncebox/uow"
	"github.com/uptrace/bun"
)

type service struct {
	units *uow.Manager
	db    *bun.DB
	last  *domain.Order
}

func keep(*domain.Order) {}

func (s *service) wrong(ctx context.Context) error {
	return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		placed := domain.Place() // want `placed has recorded events, and no unit of work knows`
		placed.Total = 3
		loaded := domain.Load()
		loaded.PayTwice()          // want `loaded has recorded events`
		inserted := domain.Place() // want `inserted has recorded events`
		if err := s.db.NewInsert().Model(inserted).Exec(); err != nil {
			return err
		}
		return nil
	})
}

func (s *service) right(ctx context.Context, outer *domain.Order) error {
	return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		tracked := domain.Place()
		u.Track(tracked)
		saved := domain.Load()
		saved.Pay()
		if err := u.Save(ctx, saved); err != nil {
			return err
		}
		both := domain.Place()
		u.Track(both)
		if err := s.db.NewInsert().Model(both).Exec(); err != nil {
			return err
		}
		passed := domain.Place()
		keep(passed)
		stored := domain.Place()
		s.last = stored
		itself := domain.Load()
		itself.PayIn(u)
		outer.Pay() // its creator may have given it to the unit
		unchanged := domain.Load()
		_ = unchanged.Total
		return nil
	})
}
