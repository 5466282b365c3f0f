// Package domain has aggregates that are used from another package.
package domain

import (
	"context"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

type Paid struct{}

func (Paid) EventType() string { return "paid" }

type Order struct {
	event.Recorder
	Total int
}

func Place() *Order { // want Place:"records"
	o := &Order{}
	o.Record(Paid{})
	return o
}

func (o *Order) Pay() { o.Record(Paid{}) } // want Pay:"records"

func (o *Order) PayTwice() { // want PayTwice:"records"
	o.Pay()
	o.Pay()
}

func (o *Order) PayIn(u *uow.Unit) { // want PayIn:"records"
	o.Pay()
	u.Track(o)
}

func (o *Order) Sum(context.Context) int { return o.Total }

func Load() *Order { return &Order{} }
