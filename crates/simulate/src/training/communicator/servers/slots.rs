//! Things with numbers, which are used again once they are over.

/// See the module.
pub(super) struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn add(&mut self, one: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.all[index as usize] = Some(one);
            return index;
        }
        self.all.push(Some(one));
        u32::try_from(self.all.len() - 1).expect("fewer than 2^32 under way")
    }

    pub(super) fn get(&self, index: u32) -> &T {
        self.all[index as usize].as_ref().expect("it is under way")
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut T {
        self.all[index as usize].as_mut().expect("it is under way")
    }

    pub(super) fn take(&mut self, index: u32) -> T {
        self.free.push(index);
        self.all[index as usize].take().expect("it is under way")
    }
}
