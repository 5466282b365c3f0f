// Package nightly holds what differs between make test and make nightly.
//
// make test is short and does the same each time: it has few rounds, and its seeds are always the same. make nightly is built with the tag
// nightly: it has many rounds and new seeds, and it also builds the files with this tag. Both also run the seeds in testdata/seeds, with which a
// test has failed before.
//
//	for seed := range nightly.Seeds(t, 20, 500) { ... }
//
// A nightly run that fails prints its seed. make nightly NIGHTLY_SEED=... repeats it with the same random numbers. A failed seed is written to
// testdata/seeds beside its test: commit this file together with the fix.
//
// Read first: nightly.go:Check.
package nightly
