// Package recipes has the code of docs/recipes.md, and that of docs/calls.md and other pages. Its tests run it.
package recipes
