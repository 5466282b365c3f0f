// Package bun stands for the real one.
package bun

type DB struct{}

func (*DB) Exec(query string) error { return nil }
func (*DB) Close() error            { return nil }

type IDB interface{ Exec(query string) error }

func (*DB) NewInsert() *InsertQuery { return nil }

type InsertQuery struct{}

func (q *InsertQuery) Model(model any) *InsertQuery { return q }
func (*InsertQuery) Exec() error                    { return nil }
