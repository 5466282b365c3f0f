package recipes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// The states of a reservation.
const (
	held      = "held"
	paying    = "paying" // the provider may have been asked, and the outcome is not known yet
	paid      = "paid"
	cancelled = "cancelled"
	expired   = "expired"
)

var (
	errDeclined = errors.New("the payment was declined")
	errNotHeld  = errors.New("the reservation is not held any more")
	errPaying   = errors.New("the reservation is being paid")
)

// Reservation is an aggregate.
type Reservation struct {
	event.Recorder `bun:"-"`

	bun.BaseModel `bun:"table:reservations"`
	ID            string `bun:",pk"`
	Status        string
	Attempt       int // of payment
	Version       int64
}

// AggregateType is part of the reservation's identity.
func (*Reservation) AggregateType() string { return "reservation" }

// AggregateID is part of the reservation's identity.
func (r *Reservation) AggregateID() string { return r.ID }

// AggregateVersion counts the events of the reservation.
func (r *Reservation) AggregateVersion() int64 { return r.Version }

// ReservationMade is an event of the reservation.
type ReservationMade struct{ ID string }

// EventType names the event on the wire.
func (ReservationMade) EventType() string { return "reservation.made" }

// ReservationPaid is an event of the reservation.
type ReservationPaid struct{ ID string }

// EventType names the event on the wire.
func (ReservationPaid) EventType() string { return "reservation.paid" }

// HoldEnded is the delayed event of a reservation.
type HoldEnded struct{ ID string }

// EventType names the event on the wire.
func (HoldEnded) EventType() string { return "hold.ended" }

// Payments has the use cases of reservations.
type Payments struct {
	App *oncebox.App
	// Charge asks the provider. A provider that gets a key again charges nothing, and gives the answer of the first request with it.
	Charge func(ctx context.Context, key string) (accepted bool, err error)
}

// PaymentRoutes serves reservations.
func PaymentRoutes(p *Payments) http.Handler {
	app := p.App
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, &httpmw.IdempotencyConfig{Required: true})
	leased := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, &httpmw.IdempotencyConfig{Required: true, Lease: &httpmw.LeaseConfig{}})
	unit := httpmw.UnitOfWork(app.UoW)
	refusals := httpjson.Errors{
		http.StatusNotFound:        {sql.ErrNoRows},
		http.StatusConflict:        {errNotHeld, errPaying},
		http.StatusPaymentRequired: {errDeclined},
	}
	mux := http.NewServeMux()
	mux.Handle("POST /reservations/{id}", once(httpjson.Handler(http.StatusCreated, refusals, p.reserve)))
	mux.Handle("POST /reservations/{id}/pay", leased(httpjson.Handler(http.StatusNoContent, refusals, p.postPay)))
	mux.Handle("DELETE /reservations/{id}", unit(httpjson.Handler(http.StatusNoContent, refusals, p.cancel)))
	return mux
}

func (p *Payments) reserve(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
	return httpjson.Nothing{}, p.App.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
		id := r.PathValue("id")
		_, err := u.Schedule("hold", HoldEnded{id}, event.WithDelay(15*time.Minute),
			event.WithDedupKey("hold of "+id), event.WithAggregate("reservation", id, 0))
		if err != nil {
			return err
		}
		res := &Reservation{ID: id, Status: held}
		res.Record(ReservationMade{id})
		return u.Save(ctx, res)
	})
}

func (p *Payments) postPay(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
	return httpjson.Nothing{}, p.pay(r.Context(), r.PathValue("id"))
}

func (p *Payments) pay(ctx context.Context, id string) error {
	r, err := p.change(ctx, id, begin)
	switch {
	case err != nil:
		return err
	case r.Status == paid:
		return nil
	case r.Status != paying:
		return errNotHeld
	}
	return p.finish(ctx, r)
}

// finish brings an attempt of payment to its end. Several requests and messages may do that at once.
func (p *Payments) finish(ctx context.Context, r *Reservation) error {
	attempt := fmt.Sprintf("reservation %s/%d", r.ID, r.Attempt)
	accepted, err := step.Call(ctx, attempt, func(ctx context.Context, _ string) (bool, error) { return p.Charge(ctx, attempt) })
	if err != nil {
		return err // no outcome: the reservation stays "paying"
	}
	if _, err := p.change(ctx, r.ID, p.end(r.Attempt, accepted)); err != nil || accepted {
		return err
	}
	return errDeclined
}

// begin is committed before the provider is asked.
func begin(_ context.Context, _ *uow.Unit, r *Reservation) error {
	if r.Status == held {
		r.Status = paying
		r.Attempt++
	}
	return nil
}

// end notes the outcome of an attempt. An outcome that another request has noted stays, and so does a later attempt.
func (p *Payments) end(attempt int, accepted bool) change {
	return func(ctx context.Context, u *uow.Unit, r *Reservation) error {
		switch {
		case r.Status != paying || r.Attempt != attempt:
			return nil
		case !accepted:
			r.Status = held // may be paid again, until the hold ends
			return nil
		}
		r.Status = paid
		r.Record(ReservationPaid{r.ID})
		_, err := p.App.Outbox.Delayed().CancelKey(ctx, u.DB(), "hold of "+r.ID)
		return err
	}
}

func (p *Payments) cancel(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
	_, err := p.change(r.Context(), r.PathValue("id"), func(ctx context.Context, u *uow.Unit, r *Reservation) error {
		switch r.Status {
		case cancelled:
			return nil
		case held:
			r.Status = cancelled
			_, err := p.App.Outbox.Delayed().CancelKey(ctx, u.DB(), "hold of "+r.ID)
			return err
		case paying:
			return errPaying
		}
		return errNotHeld
	})
	return httpjson.Nothing{}, err
}

// ConsumeHolds lets reservations expire. If a reservation is being paid, it brings that attempt to its end.
func (p *Payments) ConsumeHolds() {
	router := messaging.NewRouter(p.App.Registry)
	messaging.Handle(router, func(ctx context.Context, e HoldEnded) error {
		for {
			r, err := p.change(ctx, e.ID, expire)
			if err != nil || r.Status != paying {
				return err
			}
			// Its request may have died. After a decline the reservation is held again, and no other message lets it expire.
			if err := p.finish(ctx, r); err != nil && !errors.Is(err, errDeclined) {
				return err
			}
		}
	})
	p.App.Consume("hold", "holds", router, inbox.Leased())
}

func expire(_ context.Context, _ *uow.Unit, r *Reservation) error {
	if r.Status == held {
		r.Status = expired
	}
	return nil
}

type change func(ctx context.Context, u *uow.Unit, r *Reservation) error

// change changes a reservation in a unit of its own, or in the unit of the request.
func (p *Payments) change(ctx context.Context, id string, do change) (r *Reservation, err error) {
	err = p.App.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		r = &Reservation{ID: id}
		if err := u.DB().NewSelect().Model(r).WherePK().For("UPDATE").Scan(ctx); err != nil {
			return err
		}
		if err := do(ctx, u, r); err != nil {
			return err
		}
		return u.Save(ctx, r)
	})
	return r, err
}
