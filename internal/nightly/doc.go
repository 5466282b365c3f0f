// Package nightly holds what differs between make test and make nightly.
//
// make test is short and does the same each time: few rounds, and seeds that are always the same. make nightly is built with the
// tag nightly: many rounds, seeds that are drawn anew, and the files that only it builds.
// Both run the seeds that have failed once, from testdata/seeds.
//
//	for seed := range nightly.Seeds(t, 20, 500) { ... }
//
// A nightly run that fails prints its seed; make nightly NIGHTLY_SEED=... draws the same numbers again. A seed that failed is
// written to testdata/seeds beside its test: commit it with the mend.
//
// Read first: nightly.go:Check.
package nightly
