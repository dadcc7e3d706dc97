//! Values that are added while earlier ones are borrowed.

use std::cell::OnceCell;

/// Places on the first board; each further one has twice as many.
const FIRST: usize = 8;

/// Grows, and keeps every value where it is until the end.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    board: OnceCell<Box<Board<T>>>,
}

#[derive(Debug)]
struct Board<T> {
    places: Vec<OnceCell<T>>,
    next: Shelf<T>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { board: OnceCell::new() }
    }
}

impl<T> Shelf<T> {
    pub(super) fn put(&self, value: T) -> &T {
        let (mut shelf, mut size) = (self, FIRST);
        loop {
            let board = shelf.board.get_or_init(|| {
                let places = std::iter::repeat_with(OnceCell::new).take(size).collect();
                Box::new(Board { places, next: Shelf::default() })
            });
            let free = board.places.partition_point(|place| place.get().is_some());
            if let Some(place) = board.places.get(free) {
                return place.get_or_init(|| value);
            }
            (shelf, size) = (&board.next, size * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_stays_where_it_was_put() {
        let shelf = Shelf::default();
        let kept: Vec<&String> = (0..10_000).map(|number| shelf.put(number.to_string())).collect();
        for (number, value) in kept.into_iter().enumerate() {
            assert_eq!(*value, number.to_string());
        }
    }
}
